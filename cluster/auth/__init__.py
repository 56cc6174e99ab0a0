"""The password authenticator and its file of secrets."""
