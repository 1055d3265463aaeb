"""The ground where Sojourn's parts meet: records, table definitions, and JVM-free access to Delta."""
