"""From a .proto text to a file of descriptors, word by word. Names are left as they are written."""
