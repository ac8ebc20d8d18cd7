"""Pages of the console."""

from fastapi import APIRouter

router = APIRouter()
