def reference(x, shift):
    return (x + shift[None, :, None]).flip(2)
