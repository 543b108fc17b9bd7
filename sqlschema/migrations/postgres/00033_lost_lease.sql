-- +goose Up
ALTER TABLE {prefix}job_running ADD COLUMN losses INT NOT NULL DEFAULT 0, ADD COLUMN charged VARCHAR(400) COLLATE "C" NOT NULL DEFAULT '';

COMMENT ON COLUMN {prefix}job_running.losses IS 'How many workers lost their leases while it was running, and live';
COMMENT ON COLUMN {prefix}job_running.charged IS 'The workers whose loss counts in crashes, by the ends of their names: one that lives takes its own back';

-- +goose Down
ALTER TABLE {prefix}job_running DROP COLUMN losses, DROP COLUMN charged;
