"""Commands about topics, their messages, their subscriptions and dead letters."""
