"""How work is divided, and what that costs on a GPU: its constants, and the one model that makes clocks of them."""
