"""The client of a broker. The wire protocol is implemented once, without sockets; `penstock.aio` (asyncio) and
`penstock` (blocking) are built on it."""
