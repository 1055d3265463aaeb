-- Oban's tables (Elixir, migration 12; Oban for Python adds the producers), written down from its documentation.
CREATE TYPE oban_job_state AS ENUM (
  'available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled'
);
CREATE TABLE oban_jobs (
  id bigserial PRIMARY KEY,
  state oban_job_state NOT NULL DEFAULT 'available',
  queue text NOT NULL DEFAULT 'default',
  worker text NOT NULL,
  args jsonb NOT NULL DEFAULT '{}',
  meta jsonb NOT NULL DEFAULT '{}',
  tags text[] NOT NULL DEFAULT '{}',
  errors jsonb[] NOT NULL DEFAULT '{}',
  attempt int NOT NULL DEFAULT 0,
  max_attempts int NOT NULL DEFAULT 20,
  priority int NOT NULL DEFAULT 0,
  attempted_by text[],
  inserted_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  scheduled_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  attempted_at timestamp,
  completed_at timestamp,
  discarded_at timestamp,
  cancelled_at timestamp
);
CREATE INDEX oban_jobs_state_queue_priority_scheduled_at_id_index
  ON oban_jobs (state, queue, priority, scheduled_at, id);
CREATE INDEX oban_jobs_args_index ON oban_jobs USING gin (args);
CREATE INDEX oban_jobs_meta_index ON oban_jobs USING gin (meta);
CREATE UNLOGGED TABLE oban_producers (
  uuid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  name text NOT NULL DEFAULT 'oban',
  node text NOT NULL,
  queue text NOT NULL,
  meta jsonb NOT NULL DEFAULT '{}',
  started_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  updated_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')
);
