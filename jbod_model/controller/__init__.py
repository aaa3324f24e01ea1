"""The controller as a pure function: from the state before a request to its records and its answer."""

from jbod_model.controller.context import Context, Result
from jbod_model.controller.controller import Controller
from jbod_model.controller.memory import ControllerMemory

__all__ = ["Context", "Controller", "ControllerMemory", "Result"]
