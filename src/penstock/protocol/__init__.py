"""The wire protocol: headers, frames, actions. Bytes in, frames out: no socket, no clock."""
