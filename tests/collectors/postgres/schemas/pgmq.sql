-- PGMQ's tables (version 1.10): what pgmq.create('orders') and pgmq.create('old') leave; the second as 1.4 made it.
CREATE SCHEMA pgmq;
CREATE TABLE pgmq.meta (
  queue_name varchar UNIQUE NOT NULL, is_partitioned boolean NOT NULL, is_unlogged boolean NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO pgmq.meta VALUES ('orders', false, false), ('old', false, false);
CREATE TABLE pgmq.q_orders (
  msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct int NOT NULL DEFAULT 0,
  enqueued_at timestamptz NOT NULL DEFAULT now(), last_read_at timestamptz, vt timestamptz NOT NULL, message jsonb,
  headers jsonb
);
CREATE INDEX q_orders_vt_idx ON pgmq.q_orders (vt);
CREATE TABLE pgmq.a_orders (
  msg_id bigint PRIMARY KEY, read_ct int NOT NULL DEFAULT 0, enqueued_at timestamptz NOT NULL DEFAULT now(),
  last_read_at timestamptz, archived_at timestamptz NOT NULL DEFAULT now(), vt timestamptz NOT NULL, message jsonb,
  headers jsonb
);
CREATE TABLE pgmq.q_old (
  msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct int NOT NULL DEFAULT 0,
  enqueued_at timestamptz NOT NULL DEFAULT now(), vt timestamptz NOT NULL, message jsonb
);
CREATE INDEX q_old_vt_idx ON pgmq.q_old (vt);
