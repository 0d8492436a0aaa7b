"""The base of the demo: the events of a shop, the ledger of answers, the screen, and interrupts held back."""
