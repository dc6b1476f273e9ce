from tests.ownership.conftest import cheap_scrypt, real_scrypt  # noqa: F401
