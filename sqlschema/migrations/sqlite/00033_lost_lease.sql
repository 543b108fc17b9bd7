-- +goose Up
ALTER TABLE {prefix}job_running ADD COLUMN losses INTEGER NOT NULL DEFAULT 0; -- How many workers lost their leases while it was running, and live
ALTER TABLE {prefix}job_running ADD COLUMN charged TEXT NOT NULL DEFAULT ''; -- The workers whose loss counts in crashes, by the ends of their names: one that lives takes its own back

-- +goose Down
ALTER TABLE {prefix}job_running DROP COLUMN losses;
ALTER TABLE {prefix}job_running DROP COLUMN charged;
