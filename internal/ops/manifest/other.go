package manifest

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// ofOtherTool returns what a file is that another tool reads, and what to write instead: one message, where each of its keys would
// have one. It returns "" for all others, which may be meant for dbcron.
func ofOtherTool(root *yaml.Node) string {
	const write = "; write a list of schedules, each with name, spec and shell or argv: see examples/schedules"
	switch {
	case root.Kind != yaml.MappingNode || child(root, "schedules") != nil:
		return ""
	case child(root, "apiVersion") != nil && child(root, "kind") != nil:
		kind := child(root, "kind").Value
		text := fmt.Sprintf("this is a %s of Kubernetes, and no file of schedules", clip(kind, 60))
		if kind == "CronJob" {
			text += "; its spec.schedule is spec here, timeZone time_zone, concurrencyPolicy overlap, suspend paused, " +
				"and the container's command argv"
		}
		return text + write
	case child(root, "on") != nil && child(root, "jobs") != nil:
		return "this is a workflow of GitHub Actions, and no file of schedules; each on.schedule.cron is a spec here" + write
	case child(root, "services") != nil:
		return "this is a file of Docker Compose, and no file of schedules" + write
	}
	of := "" // a mapping of names, each to what runs
	for i := 1; i < len(root.Content); i += 2 {
		job := root.Content[i]
		if job.Kind != yaml.MappingNode {
			return ""
		}
		switch {
		case child(job, "class") != nil && (child(job, "cron") != nil || child(job, "every") != nil):
			of = "sidekiq-cron, sidekiq-scheduler or resque-scheduler"
		case child(job, "schedule") != nil && (child(job, "class") != nil || child(job, "command") != nil || child(job, "task") != nil):
			of = "Solid Queue or another tool"
		default:
			return ""
		}
	}
	if of == "" {
		return ""
	}
	return "this looks like a file of " + of + ", which maps names to jobs; here, cron or schedule is spec, and a job of a queue is job" + write
}

// child returns the value of a key of a mapping, or nil.
func child(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}
