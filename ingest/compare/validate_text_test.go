package compare

const validationHead = "HEAD %d %d\n"
const validationBeyond = "\nBEYOND\n"
const validationTail = ""
