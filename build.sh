for d in base now; do cd /tmp/b/$d; meson setup build >/dev/null 2>&1; time ninja -C build -j2 2>&1 | tail -1; done; echo BUILT
