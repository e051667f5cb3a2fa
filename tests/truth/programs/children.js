// Starts children by exec, execFile, spawn with a pipe, fork, and spawnSync of child_process.
const { exec, execFile, spawn, fork, spawnSync } = require("child_process");
const { promisify } = require("util");

const ended = (child) =>
  new Promise((resolve, reject) => child.on("exit", (code) => (code === 0 ? resolve() : reject(code))));

function burn(ms) {
  const start = process.cpuUsage();
  while (process.cpuUsage(start).user < ms * 1000);
}

async function main() {
  for (let i = 0; i < 10; i++) {
    await promisify(exec)("seq 2000 | sort -rn | tail -n 1");
    await promisify(execFile)("seq", ["1000"]);
    const child = spawn("sort", ["-rn"], { stdio: ["pipe", "ignore", "inherit"] });
    child.stdin.end("3\n1\n2\n");
    await ended(child);
    if (spawnSync("true").status !== 0) throw new Error("true");
  }
  await Promise.all([1, 2].map(() => ended(fork(__filename, ["worker"]))));
  burn(300);
}

if (process.argv[2] === "worker") burn(300);
else main().catch((error) => { console.error(error); process.exit(1); });
