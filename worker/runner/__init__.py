"""The runner: starts and watches the trainers of one machine; talks to the service over HTTP."""
