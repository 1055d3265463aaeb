"""What a page shows beside its rule's words: whom it is about, what waits longest, what is being done about it."""
