import java.util.ArrayList;
import java.util.List;

/** Runs 30 shells, four at a time, and computes in two threads at the same time. */
public class Children {
    private static volatile boolean done;

    public static void main(String[] args) throws Exception {
        Thread[] threads = new Thread[2];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> { while (!done) { Math.sqrt(Math.random()); } });
            threads[i].start();
        }
        List<Process> running = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            if (running.size() == 4) {
                expectSuccess(running.remove(0));
            }
            running.add(new ProcessBuilder("sh", "-c", "seq 2000 | sort -rn >/dev/null").start());
        }
        for (Process process : running) {
            expectSuccess(process);
        }
        done = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void expectSuccess(Process process) throws InterruptedException {
        if (process.waitFor() != 0) {
            System.exit(1);
        }
    }
}
