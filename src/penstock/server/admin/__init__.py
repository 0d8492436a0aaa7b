"""The admin API, `/v1`: what the command line and the console ask for, over HTTP. It carries; the broker decides."""
