/** Burns 0.5 s of CPU in each of two threads and starts three processes of /bin/true. */
public class Burn {
    public static void main(String[] args) throws Exception {
        Thread[] threads = new Thread[2];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                var clock = java.lang.management.ManagementFactory.getThreadMXBean();
                while (clock.getCurrentThreadCpuTime() < 500_000_000L) { }
            });
            threads[i].start();
        }
        for (int i = 0; i < 3; i++) {
            if (new ProcessBuilder("/bin/true").start().waitFor() != 0) System.exit(98);
        }
        for (Thread thread : threads) thread.join();
        System.out.println("done");
    }
}
