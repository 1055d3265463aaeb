"""What is on the screen: pages, and the markup they share."""
