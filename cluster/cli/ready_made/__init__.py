"""`trimaran up`, and a command for each service that is ready to run."""
