"""The admin API, `/v1`: what the command line and the console need, over HTTP. The broker decides; this only
translates."""
