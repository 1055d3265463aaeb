"""What rules would have done: evaluated over the history that the lake holds, instant by instant."""
