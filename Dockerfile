# One file, six images: `docker build --target api|worker|clouds|sky|trainer|trainer-gpu .`
# The control plane (api, worker) contains no torch; the data plane (trainer) runs no service.

FROM python:3.11-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/hillclimb
# A named volume takes its owner from the image: without this folder root would own it.
RUN useradd --create-home --uid 10001 hillclimb \
    && install -d -o hillclimb -g hillclimb -m 700 /var/lib/hillclimb

# Without SkyPilot, and without what builds, checks and tests.
FROM base AS control
COPY requirements/service.txt requirements/build.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/service.txt
COPY pyproject.toml README.md alembic.ini ./
COPY hillclimb hillclimb
COPY api api
COPY worker worker
COPY trainer trainer
COPY migrations migrations
COPY docs docs
# The wheel that nodes of clusters install is built from these, and needs the locks beside it.
COPY assets assets
COPY requirements/trainer.txt requirements/torch.txt requirements/trainer-gpu.txt requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && pip uninstall --yes -r requirements/build.txt
USER hillclimb

FROM control AS api
EXPOSE 8710
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8710/v1/health')"]
CMD ["python", "-m", "api.http.live.serving", "--host", "0.0.0.0", "--port", "8710"]

# Processes without a port touch a file while they work (hillclimb/stack/system/alive.py).
FROM control AS worker
ENV HILLCLIMB_ALIVE_FILE=/tmp/alive
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "hillclimb.stack.system.alive"]
CMD ["python", "-m", "celery", "-A", "worker.app", "worker", "--concurrency", "2", "--loglevel", "INFO"]

# The worker that rents: SkyPilot's client, and what builds the wheel of nodes.
FROM worker AS clouds
USER root
COPY requirements/clouds.txt requirements/clouds.txt
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt -r requirements/clouds.txt
USER hillclimb
CMD ["python", "-m", "celery", "-A", "worker.app", "worker", "--queues", "clusters", "--concurrency", "4", "--loglevel", "INFO"]

# SkyPilot's API server: its home is a volume, with the clouds' credentials in it.
FROM clouds AS sky
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl openssh-client rsync \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o hillclimb -g hillclimb -m 700 /var/lib/sky
USER hillclimb
ENV HOME=/var/lib/sky IS_SKYPILOT_SERVER=true SKYPILOT_USER_ID=68636c62
HEALTHCHECK --interval=10s --timeout=3s --start-period=180s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:46580/api/health')"]
CMD ["sh", "-c", "python -m hillclimb.stack.system.cloud_keys && exec python -m sky.server.server --host 0.0.0.0 --port 46580"]

# The runner's own process needs no torch; it starts trainers with this image's Python.
FROM base AS trainer
COPY requirements/trainer.txt requirements/torch.txt requirements/
# torch last, with its wheel's own dependencies beside the locked (a CUDA wheel needs libraries that the lock lacks).
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/trainer.txt \
    && pip install --no-cache-dir --no-warn-conflicts -r requirements/torch.txt
COPY pyproject.toml README.md ./
COPY hillclimb hillclimb
COPY api api
COPY worker worker
COPY trainer trainer
COPY assets assets
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e .
ENV HILLCLIMB_TRAINER_PYTHON=/usr/local/bin/python OMP_NUM_THREADS=1 HILLCLIMB_ALIVE_FILE=/tmp/alive
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "hillclimb.stack.system.alive"]
USER hillclimb
CMD ["python", "-m", "worker.runner"]

# The same for a machine with GPUs: vLLM's CUDA build. CUDA's libraries and its compiler come as
# wheels, the driver from the machine (NVIDIA's container toolkit); Triton compiles with gcc.
FROM base AS trainer-gpu
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/trainer-gpu.txt requirements/trainer-gpu.txt
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/trainer-gpu.txt
COPY pyproject.toml README.md ./
COPY hillclimb hillclimb
COPY api api
COPY worker worker
COPY trainer trainer
COPY assets assets
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e .
ENV HILLCLIMB_TRAINER_PYTHON=/usr/local/bin/python OMP_NUM_THREADS=1 HILLCLIMB_ALIVE_FILE=/tmp/alive
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "hillclimb.stack.system.alive"]
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER hillclimb
CMD ["python", "-m", "worker.runner"]
