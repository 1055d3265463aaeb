"""A program of its own: start a session, append to a Delta table twice, read it back, say what was seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from spark_analytics.runtime.session import build_session


def main(folder: Path) -> None:
    session = build_session("round trip", quick_start=True, conf={"spark.driver.memory": "1g"})
    table, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    for start in (0, 100):
        session.range(start, start + 100).write.format("delta").mode("append").save(table)
    seen: list[int] = []
    stream = session.readStream.format("delta").load(table).writeStream.trigger(availableNow=True)
    stream.foreachBatch(lambda rows, _: seen.append(rows.count())).option("checkpointLocation", checkpoint).start()
    for query in session.streams.active:
        query.awaitTermination()
    assert session._jvm is not None
    print(
        json.dumps(
            {
                "rows": session.read.format("delta").load(table).count(),
                "streamed": sum(seen),
                "java": session._jvm.java.lang.System.getProperty("java.version"),
                "java_home": session._jvm.java.lang.System.getProperty("java.home"),
                "time_zone": session.sql("SELECT current_timezone()").first()[0],  # type: ignore[index]
                "shuffle_partitions": session.conf.get("spark.sql.shuffle.partitions"),
            }
        )
    )
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
