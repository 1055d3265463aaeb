module sojourn.test/toolchain

go 1.19
