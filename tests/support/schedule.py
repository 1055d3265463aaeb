"""Which files of tests one process runs after another: those that share what is expensive to start."""

from __future__ import annotations

import re
from itertools import count

from xdist.scheduler import LoadFileScheduling

#: A file that asks for the session's Spark: each process that has one starts a Java and warms it up.
_SPARK = re.compile(r"\bspark: (?:SparkSession|object)\b")
#: Folders whose files ask for the same server, which lasts as long as the process.
_SERVERS = {
    "tests/collectors/kafka/": "Kafka",
    "tests/collectors/transport/": "Kafka",
    "tests/collectors/postgres/": "PostgreSQL",
    "tests/collectors/rabbitmq/": "RabbitMQ",
    "tests/collectors/sqs/": "SQS",
}


class Schedule(LoadFileScheduling):
    """Files one by one to whoever is free; those that share a server to one, those that share Spark to half of all."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._scopes: dict[str, str] = {}
        self._sparks = count()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if file not in self._scopes:
            self._scopes[file] = self._scope(file)
        return self._scopes[file]

    def _scope(self, file: str) -> str:
        for folder, server in _SERVERS.items():
            if file.startswith(folder):
                return server
        if _SPARK.search((self.config.rootpath / file).read_text(encoding="utf-8")):
            return f"Spark {next(self._sparks) % max(1, self.numnodes // 2)}"
        return file
