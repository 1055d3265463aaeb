"""Go and Node as the libraries of the tests want them: the machine's own where they are new enough, else fetched.

Debian 12 has Go 1.19 and Node 18, Debian 13 Go 1.24; River wants Go 1.26, pg-boss' workers Node 20. An old Go fetches
a newer one as what it is to Go, a module (``golang.org/toolchain``), and npm has Node as a package; both are held to
the hashes that stand beside this file.
"""
