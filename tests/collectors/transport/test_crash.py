"""SIGKILL of the sending process at random instants: every row is sent once, and none is missing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from lake.store import Lake
from tests.collectors.transport.making import bronze, sent, settings
from tests.support.kafka import KafkaServer
from tests.support.waiting import wait_until

KILLS = 4
ROWS = 200

#: Sends batch after batch from where bronze says that it is: the rows of batch n are n-0, n-1, …
_CHILD = f"""
import sys
from pathlib import Path
from collectors.records import Event, events_table, now_us
from collectors.transport.bronze import KafkaBronze
from collectors.transport.settings import TransportSettings
from lake.store import Lake
bronze = KafkaBronze(TransportSettings.model_validate_json(sys.argv[1]), Lake(sys.argv[2]))
done = bronze.committed("message_events", "tap:mq@1") or 0
while True:
    done += 1
    print(done, flush=True)
    now = now_us()
    events = [Event("enqueued", f"q{{n % 7}}", None, "t", f"{{done}}-{{n}}", None, now, now) for n in range({ROWS})]
    bronze.append("message_events", events_table(events, "mq", "tap"), app_id="tap:mq@1", version=done)
"""


def test_killing_the_sender_at_any_instant_neither_loses_nor_doubles(kafka_server: KafkaServer, lake: Lake) -> None:
    chosen, chance = settings(kafka_server, partitions=3), random.Random(4)
    command = [sys.executable, "-c", _CHILD, chosen.model_dump_json(), str(lake.root)]
    for _ in range(KILLS):
        with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(3):
                assert child.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.15))
            child.kill()
    last = bronze(chosen, lake).committed("message_events", "tap:mq@1")
    assert last is not None
    assert last >= 2 * KILLS
    rows = wait_until(lambda: sent(chosen, "message_events"), "the records")
    found = Counter(row["message_id"] for row in rows)
    assert found == {f"{batch}-{number}": 1 for batch in range(1, last + 1) for number in range(ROWS)}
