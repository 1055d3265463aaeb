"""Hands a message to a mail server: at the address that was checked, encrypted, and within the time."""

from __future__ import annotations

import smtplib
import socket
import ssl
from typing import Any

from alerts.notify.notifiers.base import Mail
from lake.errors import SojournError


class MailRefused(SojournError):
    """The server answered. ``status`` is its code: 4yz may pass, 5yz will not."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Postman:
    """One handing-over, in a thread; :meth:`cancel` it from another when it takes too long."""

    def __init__(self, mail: Mail, address: str, tls: ssl.SSLContext, seconds: float) -> None:
        self._mail, self._address, self._tls, self._seconds = mail, address, tls, seconds
        self._connection: smtplib.SMTP | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Let go of the server; what waits for it ends."""
        self._cancelled = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def deliver(self) -> str | None:
        """Hand it over. None, or which recipients the server refused while it took others.

        Raises MailRefused where it took it for nobody, OSError where there was no answer.
        """
        mail = self._mail
        try:
            with self._connect() as server:
                self._connection = server
                if self._cancelled:
                    raise TimeoutError("it took too long")
                if mail.target.scheme == "smtp" and mail.starttls:
                    server.starttls(context=self._tls)
                if mail.target.user:
                    server.login(mail.target.user, mail.password)
                refused = server.sendmail(mail.sender, list(mail.recipients), mail.content)
        except smtplib.SMTPRecipientsRefused as error:
            code, why = next(iter(error.recipients.values()))
            raise MailRefused(code, f"no recipient was taken: {code} {_text(why)}") from None
        except smtplib.SMTPResponseException as error:
            raise MailRefused(error.smtp_code, f"answered {error.smtp_code} {_text(error.smtp_error)}") from None
        except smtplib.SMTPNotSupportedError as error:
            raise MailRefused(554, f"it does not encrypt, or takes no login: {error}") from None
        except smtplib.SMTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from None
        return f"not taken for {', '.join(sorted(refused))}" if refused else None

    def _connect(self) -> smtplib.SMTP:
        target, address = self._mail.target, self._address
        if target.scheme == "smtps":
            return _tls_at(address)(target.host, target.port, timeout=self._seconds, context=self._tls)
        return _plain_at(address)(target.host, target.port, timeout=self._seconds)


def _plain_at(address: str) -> type[smtplib.SMTP]:
    class At(smtplib.SMTP):
        """Connects to the address that was checked, and asks it for the certificate of the host's name."""

        def _get_socket(self, host: str, port: int, timeout: Any) -> Any:
            return socket.create_connection((address, port), timeout)

    return At


def _tls_at(address: str) -> type[smtplib.SMTP_SSL]:
    class At(smtplib.SMTP_SSL):
        """The same, encrypted from the first byte."""

        def _get_socket(self, host: str, port: int, timeout: Any) -> Any:
            return self.context.wrap_socket(socket.create_connection((address, port), timeout), server_hostname=host)

    return At


def _text(answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return text[:200]
