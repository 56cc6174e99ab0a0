"""What members tell each other of their services, and what each makes of it: who differs, and who stops."""
