"""What may be asked of the lake in SQL, decided before an engine sees it."""
