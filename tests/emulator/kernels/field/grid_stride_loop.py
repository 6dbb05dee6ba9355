def reference(a, b):
    return (a - b) ** 2
