-- GoodJob's tables (version 4), as its migrations for Rails make them.
CREATE TABLE good_jobs (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  queue_name text,
  priority integer,
  serialized_params jsonb,
  scheduled_at timestamp(6),
  performed_at timestamp(6),
  finished_at timestamp(6),
  error text,
  created_at timestamp(6) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  updated_at timestamp(6) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  active_job_id uuid,
  concurrency_key text,
  cron_key text,
  retried_good_job_id uuid,
  cron_at timestamp(6),
  batch_id uuid,
  batch_callback_id uuid,
  is_discrete boolean,
  executions_count integer,
  job_class text,
  error_event smallint,
  labels text[],
  locked_by_id uuid,
  locked_at timestamp(6)
);
CREATE INDEX index_good_jobs_on_scheduled_at ON good_jobs (scheduled_at) WHERE finished_at IS NULL;
CREATE INDEX index_good_jobs_on_queue_name_and_scheduled_at
  ON good_jobs (queue_name, scheduled_at) WHERE finished_at IS NULL;
CREATE INDEX index_good_jobs_jobs_on_finished_at
  ON good_jobs (finished_at) WHERE retried_good_job_id IS NULL AND finished_at IS NOT NULL;
CREATE INDEX index_good_job_jobs_for_candidate_lookup ON good_jobs (priority, created_at) WHERE finished_at IS NULL;
CREATE INDEX index_good_jobs_on_discarded
  ON good_jobs (finished_at DESC) WHERE finished_at IS NOT NULL AND error IS NOT NULL;
CREATE TABLE good_job_processes (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  created_at timestamp(6) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  updated_at timestamp(6) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
  state jsonb,
  lock_type smallint
);
