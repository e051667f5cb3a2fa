import java.nio.ByteBuffer;
import java.util.List;

/**
 * Hold.java MIB [JAVA HOLD]: has MIB outside of its heap; writes "ready"; ends when its standard input ends.
 * With the paths of java and of this file, a child does the same.
 */
public class Hold {
    public static void main(String[] args) throws Exception {
        Process child = null;
        if (args.length > 1) {
            child = new ProcessBuilder(List.of(args[1], "-XX:+UseSerialGC", "-Xmx64m", "-XX:MaxDirectMemorySize=200m", args[2], args[0]))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            if (child.getInputStream().read() < 0) System.exit(98);
        }
        ByteBuffer memory = ByteBuffer.allocateDirect(Integer.parseInt(args[0]) << 20);
        System.out.println("ready");
        while (System.in.read() >= 0) { }
        if (child != null) {
            child.getOutputStream().close();
            child.waitFor();
        }
        memory.put(0, (byte) 1);
    }
}
