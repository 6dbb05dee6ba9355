def reference(x, y, alpha):
    return alpha * x + y
