def reference(tokens, table, positions):
    return table[tokens] + positions
