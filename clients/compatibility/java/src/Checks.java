import java.util.LinkedHashMap;
import java.util.Map;

/** Runs checks one after the other, and prints the answer of each. */
final class Checks {
    interface Check {
        void run() throws Exception;
    }

    private final Map<String, Check> all = new LinkedHashMap<>();

    Checks add(String name, Check check) {
        all.put(name, check);
        return this;
    }

    static void holds(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("WRONG " + what);
        }
    }

    void run() {
        all.forEach((name, check) -> {
            String answer = "ok";
            try {
                check.run();
            } catch (Throwable error) {
                answer = String.valueOf(error.getMessage()).replace("\n", " ");
            }
            System.out.println(name + "\t" + answer);
        });
    }
}
