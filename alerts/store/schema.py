"""The tables of the alert process's store, and the statement that writes a whole row of one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

#: In SQLite's words, which :mod:`alerts.store.postgres` translates.
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rules (
  rule_group TEXT, rule TEXT, evaluated_to INTEGER NOT NULL, PRIMARY KEY (rule_group, rule));
CREATE TABLE IF NOT EXISTS alerts (
  rule_group TEXT, rule TEXT, fingerprint TEXT, labels TEXT NOT NULL, annotations TEXT NOT NULL, value REAL,
  state TEXT NOT NULL, active_since INTEGER NOT NULL, fired_at INTEGER, kept_since INTEGER, paused INTEGER NOT NULL,
  resolved_at INTEGER, PRIMARY KEY (rule_group, rule, fingerprint));
CREATE TABLE IF NOT EXISTS notified (
  receiver TEXT, group_key TEXT, firing TEXT NOT NULL, resolved TEXT NOT NULL, sent_at INTEGER NOT NULL,
  PRIMARY KEY (receiver, group_key));
CREATE TABLE IF NOT EXISTS decisions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, receiver TEXT NOT NULL, group_key TEXT NOT NULL,
  sent INTEGER NOT NULL, reason TEXT NOT NULL, firing INTEGER NOT NULL, resolved INTEGER NOT NULL, muted TEXT);
CREATE TABLE IF NOT EXISTS outbox (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, receiver TEXT NOT NULL, group_key TEXT NOT NULL,
  status TEXT NOT NULL, alerts INTEGER NOT NULL, data_as_of INTEGER, body TEXT NOT NULL, created_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, next_at INTEGER NOT NULL, firing TEXT, resolved TEXT);
CREATE TABLE IF NOT EXISTS settled (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, receiver TEXT NOT NULL, group_key TEXT NOT NULL,
  firing TEXT NOT NULL, resolved TEXT NOT NULL, at INTEGER NOT NULL, delivered INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_in_order ON outbox (receiver, group_key, sequence);
CREATE TABLE IF NOT EXISTS disabled (receiver TEXT PRIMARY KEY, url TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS receiver_health (
  receiver TEXT PRIMARY KEY, failing_since INTEGER NOT NULL, refused INTEGER NOT NULL, error TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS transitions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, data_as_of INTEGER, rule_group TEXT NOT NULL,
  rule TEXT NOT NULL, fingerprint TEXT NOT NULL, labels TEXT NOT NULL, annotations TEXT NOT NULL,
  from_state TEXT NOT NULL, to_state TEXT NOT NULL, value REAL, reason TEXT NOT NULL,
  inputs TEXT);
CREATE TABLE IF NOT EXISTS deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, delivery_id TEXT NOT NULL, receiver TEXT NOT NULL,
  group_key TEXT NOT NULL, status TEXT NOT NULL, alerts INTEGER NOT NULL, attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL, status_code INTEGER, error TEXT, duration_seconds REAL, data_as_of INTEGER);
CREATE TABLE IF NOT EXISTS silences (
  id TEXT PRIMARY KEY, matchers TEXT NOT NULL, starts_at INTEGER NOT NULL, ends_at INTEGER NOT NULL,
  created_by TEXT NOT NULL, comment TEXT NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS acknowledgements (
  fingerprint TEXT PRIMARY KEY, by TEXT NOT NULL, comment TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS received (
  fingerprint TEXT PRIMARY KEY, labels TEXT NOT NULL, annotations TEXT NOT NULL, generator_url TEXT NOT NULL,
  starts_at INTEGER NOT NULL, ends_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, who TEXT NOT NULL, peer TEXT NOT NULL,
  what TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL);
"""


@cache
def upsert(table: str) -> str:
    """The statement that puts a whole row into ``table``, in place of the one with the same key."""
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(SCHEMA)
        columns = model.execute(f"PRAGMA table_info({table})").fetchall()
    keys = ", ".join(name for _, name, *_, key in columns if key)
    values = ", ".join(f"{name} = excluded.{name}" for _, name, *_, key in columns if not key)
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({keys}) DO UPDATE SET {values}"
