"""Price lists of SkyPilot's clouds as the tests have them: a hand-made file is never refreshed."""

from __future__ import annotations

from pathlib import Path

SCHEMA = "v8"
_H100X8 = (
    "\"{'Gpus': [{'Name': 'H100', 'Manufacturer': 'NVIDIA', 'Count': 8.0,"
    " 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 655360}\""
)
_COLUMNS = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB"
FILES = {
    "common/accelerators.csv": """\
AcceleratorName,Clouds
H100,"['Lambda', 'RunPod', 'Vast', 'PrimeIntellect', 'AWS', 'Slurm']"
H100-SXM,['RunPod']
""",
    "common/metadata.csv": "GPU,MemoryGB,Manufacturer\nH100,80,NVIDIA\n",
    "lambda/vms.csv": f"""\
{_COLUMNS},Price,Region,GpuInfo,SpotPrice
gpu_8x_h100_sxm5,H100,8.0,208.0,1800.0,23.92,us-west-1,{_H100X8},
gpu_1x_h100_sxm5,H100,1.0,26.0,225.0,3.29,us-west-1,{_H100X8},
""",
    "runpod/vms.csv": f"""\
{_COLUMNS},GpuInfo,Region,SpotPrice,Price,AvailabilityZone
8x_H100_SECURE,H100,8.0,128.0,640.0,{_H100X8},US,12.0,19.12,US-KS-2
""",
    "primeintellect/vms.csv": f"""\
InstanceType,UpstreamCloudId,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,\
AvailabilityZone,Price,SpotPrice
hyperstack__8xH100_80GB__252__1440,n3-H100x8,252.0,1440,H100,8.0,{_H100X8},CA,CANADA-1,15.2,
datacrunch__8xH100_80GB__176__1480,8H100,176.0,1480,H100,8.0,{_H100X8},FI,FIN-02,15.77,
""",
}


def write_catalog(home: Path) -> None:
    """Write the lists below `home`/.sky, where SkyPilot looks for them."""
    for name, text in FILES.items():
        file = home / ".sky" / "catalogs" / SCHEMA / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
