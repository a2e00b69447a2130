"""One PostgreSQL server for all tests that want one."""

import pytest
from checks import postgresql


@pytest.fixture(scope="session")
def postgresql_server():
    """The folder of a server with accounts of its own."""
    pytest.importorskip("sqlalchemy", reason="no SQLAlchemy is installed (pip install plrvo[database])")
    pytest.importorskip("psycopg", reason="no driver of PostgreSQL is installed (pip install plrvo[database])")
    reason = postgresql.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgresql.server() as folder:
        yield folder
