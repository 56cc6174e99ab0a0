"""The ground floor of the runtime: host, clock, activities, network, credentials."""
