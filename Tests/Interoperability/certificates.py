"""Keys and certificates, made with the openssl command."""

import os
import ssl
import subprocess
from urllib.parse import quote


def openssl(*arguments, data=None):
    result = subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=False)
    if result.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {result.stderr.decode()}")
    return result.stdout


def app_urn(app_id):
    return f"urn:opendynamics:app:{quote(app_id, safe='-._~')}"


def user_urn(user):
    return f"urn:opendynamics:user:{quote(user, safe='-._~')}"


class Key:
    """A P-256 key in a file, and a certificate of its own that says nothing."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.path = os.path.join(directory, f"{name}.key")
        self.own = os.path.join(directory, f"{name}.self.pem")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.path)
        openssl("req", "-x509", "-new", "-key", self.path, "-subj", "/CN=x", "-days", "1", "-out", self.own)

    def store(self, name, der):
        """The certificate as a file."""
        path = os.path.join(self.directory, f"{self.name}.{name}.pem")
        with open(path, "w", encoding="ascii") as file:
            file.write(ssl.DER_cert_to_PEM_cert(der))
        return path


class Authority:
    """An authority that no app has pinned, and the leaves that it issues."""

    def __init__(self, directory, name="other"):
        self.directory = directory
        self.path = os.path.join(directory, f"{name}.authority")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.path + ".key")
        openssl(
            *("req", "-x509", "-new", "-key", self.path + ".key", "-subj", f"/CN=OpenDynamics {name}", "-days", "2"),
            *("-addext", "basicConstraints=critical,CA:TRUE,pathlen:0", "-addext", "keyUsage=critical,keyCertSign"),
            *("-out", self.path + ".pem"))
        with open(self.path + ".pem", encoding="ascii") as file:
            self.der = ssl.PEM_cert_to_DER_cert(file.read())

    def issue(self, key, app_id, user):
        """A leaf as the broker's, as a file."""
        path = os.path.join(self.directory, f"{key.name}.leaf-of-another.pem")
        extensions = path + ".ext"
        with open(extensions, "w", encoding="ascii") as file:
            file.write(
                "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                "extendedKeyUsage=clientAuth,serverAuth\n"
                f"subjectAltName=URI:{app_urn(app_id)},URI:{user_urn(user)}\n")
        request = openssl("req", "-new", "-key", key.path, "-subj", f"/CN={app_id[:64]}")
        openssl(
            *("x509", "-req", "-CA", self.path + ".pem", "-CAkey", self.path + ".key", "-set_serial", "77"),
            *("-days", "1", "-extfile", extensions, "-out", path), data=request)
        return path


def context(server_side, certificate, key, authority=None):
    """TLS 1.3 with a certificate of one's own, without resumption. `authority` (DER): the peer's certificate has to be issued by it."""
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    result.minimum_version = result.maximum_version = ssl.TLSVersion.TLSv1_3
    result.check_hostname = False
    result.options |= ssl.OP_NO_TICKET
    if server_side:
        result.num_tickets = 0
    if certificate:
        result.load_cert_chain(certificate, key.path)
    result.verify_mode = ssl.CERT_NONE
    if authority:
        result.load_verify_locations(cadata=authority)
        result.verify_mode = ssl.CERT_REQUIRED
    return result
