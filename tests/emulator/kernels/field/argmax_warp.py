def reference(x):
    return x.argmax(1)
