package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// settings takes the words of settings, and the values that they can have, from the tables.
func (a *API) settings() {
	if a.docs == nil {
		return
	}
	schemas := a.docs.OpenAPI().Components.Schemas.Map()
	describeSettings(schemas, scheduler.Settings(), "Schedule", "ScheduleDetail", "ScheduleChange")
	describeSettings(schemas, admin.Settings(), "Queue", "QueueStatus", "QueueDetail", "QueueChange")
}

func describeSettings[T any](schemas map[string]*huma.Schema, settings []setting.Setting[T], names ...string) {
	for _, name := range names {
		if schemas[name] == nil {
			continue // no operation has it
		}
		for i := range settings {
			s := &settings[i]
			field := schemas[name].Properties[s.Name]
			field.Description = s.Help
			switch {
			case s.Kind == setting.Size:
				field.Description += " In bytes."
			case s.Kind == setting.Word || s.Kind == setting.Priority:
				for _, word := range s.Words {
					field.Enum = append(field.Enum, word)
				}
			case len(s.Words) > 0:
				field.Description += " It may be " + strings.Join(s.Words, " or ") + "."
			}
			if is := s.Default(); is != "" && strings.HasSuffix(name, "Change") {
				field.Description += " Default: " + is + "."
			}
			field.PrecomputeMessages()
		}
	}
}
