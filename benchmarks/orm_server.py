"""What many would write: FastAPI, a SQLAlchemy ORM session per request, models and a response
model, on SQLite with
full durability. A peer of `benchmarks.wire`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy import ForeignKey, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker


class Base(DeclarativeBase):
    pass


class NodeRow(Base):
    __tablename__ = "nodes"
    node_id: Mapped[str] = mapped_column(primary_key=True)
    accelerator_type: Mapped[str]
    runtime_version: Mapped[str]
    state: Mapped[str]


class OperationRow(Base):
    __tablename__ = "operations"
    operation_id: Mapped[str] = mapped_column(primary_key=True)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"))
    verb: Mapped[str]
    done: Mapped[bool]


class Node(BaseModel):
    acceleratorType: str
    runtimeVersion: str
    state: str = "CREATING"


class Operation(BaseModel):
    name: str
    done: bool


def create(data: Path) -> FastAPI:
    engine = create_engine(f"sqlite:///{data / 'orm.db'}")

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA busy_timeout=10000")
        cursor.close()

    Base.metadata.create_all(engine)
    app = FastAPI()
    app.state.sessions = sessionmaker(engine)
    app.post("/nodes")(_create)
    app.get("/nodes/{node_id}")(_get)
    return app


def _session(request: Request) -> Iterator[Session]:
    with request.app.state.sessions() as found:
        yield found


def _create(node_id: str, node: Node, db: Session = Depends(_session)) -> Operation:
    if db.get(NodeRow, node_id) is not None:
        raise HTTPException(409)
    db.add(
        NodeRow(
            node_id=node_id,
            accelerator_type=node.acceleratorType,
            runtime_version=node.runtimeVersion,
            state=node.state,
        )
    )
    operation = OperationRow(
        operation_id=os.urandom(12).hex(), node_id=node_id, verb="create", done=False
    )
    db.add(operation)
    db.commit()
    return Operation(name=operation.operation_id, done=operation.done)


def _get(node_id: str, db: Session = Depends(_session)) -> Node:
    row = db.get(NodeRow, node_id)
    if row is None:
        raise HTTPException(404)
    return Node(
        acceleratorType=row.accelerator_type, runtimeVersion=row.runtime_version, state=row.state
    )
