"""The controller as a pure function of a request and the state before it; it returns records and an answer."""

from jbod_model.controller.context import Context, ControllerMemory, Result
from jbod_model.controller.controller import Controller

__all__ = ["Context", "Controller", "ControllerMemory", "Result"]
