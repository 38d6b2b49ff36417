"""A certificate authority that exists as long as a test."""
# SPDX-License-Identifier: Apache-2.0
import os
import ssl
import subprocess

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*words):
    return subprocess.run(["openssl", *words], check=True, capture_output=True, text=True).stdout


class Authority:
    """`file` is its certificate; `folder` has it under the name by which OpenSSL looks for it."""

    def __init__(self, folder, name="authority"):
        self.base = os.path.join(folder, name)
        os.makedirs(self.base)
        self.file, self.key = os.path.join(self.base, "ca.pem"), os.path.join(self.base, "ca.key")
        openssl("req", "-x509", *KEY, "-keyout", self.key, "-out", self.file, "-days", "2", "-subj", "/CN=" + name,
                "-addext", "basicConstraints=critical,CA:TRUE")
        self.folder = os.path.join(self.base, "certs")
        os.makedirs(self.folder)
        digest = openssl("x509", "-hash", "-noout", "-in", self.file).strip()
        os.symlink(self.file, os.path.join(self.folder, digest + ".0"))

    def server(self, names="IP:127.0.0.1,DNS:localhost"):
        """The context of a server with these names, signed by this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate(names))
        return context

    def certificate(self, names="IP:127.0.0.1,DNS:localhost"):
        """The files of a certificate for these names, signed by this authority, and of its key."""
        path = os.path.join(self.base, f"server{len(os.listdir(self.base))}")
        with open(path + ".ext", "w") as file:
            file.write("subjectAltName=" + names)
        openssl("req", *KEY, "-keyout", path + ".key", "-out", path + ".csr", "-subj", "/CN=server")
        openssl("x509", "-req", "-in", path + ".csr", "-CA", self.file, "-CAkey", self.key, "-CAcreateserial", "-days", "2", "-extfile", path + ".ext",
                "-out", path + ".pem")
        return path + ".pem", path + ".key"
