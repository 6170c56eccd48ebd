//! Parameter files of TIPTOP as system files: what is written of each example, and the command that writes it.

use crate::cli::{Checked, Run};
use lenslet::image::ImagingOptions;
use lenslet::model::{Imported, System};
use std::path::PathBuf;

const EXAMPLES: [&str; 5] = ["ERIS_LGS", "HarmoniLTAO_1", "MAVIS", "MORFEO", "MUSE_LTAO"];

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("book/systems/tiptop/{name}.ini"))
}

#[test]
fn examples_are_written_as_they_were() {
    for name in EXAMPLES {
        let text = std::fs::read_to_string(example(name)).unwrap();
        let imported = Imported::from_tiptop(&text, &format!("{name}.ini")).unwrap();
        let system = System::from_toml(&imported.toml, name).unwrap();
        let options = ImagingOptions::from_toml(&imported.toml, name).unwrap();
        assert_eq!(options.correction.weights.len(), system.targets().len());
        insta::assert_snapshot!(format!("import_{name}"), imported.toml);
    }
}

#[test]
fn the_command_writes_a_system_file() -> Checked {
    let run = Run::new()?;
    let muse = example("MUSE_LTAO");
    let output = run.lenslet(&format!("import {} -o muse.toml", muse.display()))?;
    let said = String::from_utf8(output.stdout)?;
    assert!(output.status.success() && output.stderr.is_empty(), "{said}");
    assert!(said.contains("5 guide stars, 10 layers, ltao with 1 mirror, 1 target"), "{said}");
    assert!(said.contains("telescope.Resolution: the grid of the pupil"), "{said}");
    let written = std::fs::read_to_string(run.path("muse.toml"))?;
    let printed = run.lenslet(&format!("import {}", muse.display()))?;
    assert_eq!(String::from_utf8(printed.stdout)?, written);
    let plan = run.lenslet("psf muse.toml --plan")?;
    assert!(String::from_utf8(plan.stdout)?.contains("images of 1 targets"));
    let output = run.lenslet(&format!("import {} -o muse.toml --json", muse.display()))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let key = &told["keys"][0];
    assert_eq!((&key["key"], &key["line"]), (&"telescope.TelescopeDiameter".into(), &2.into()));
    assert_eq!((&key["fate"], &key["told"]), (&"converted".into(), &"telescope.diameter".into()));
    assert!(run.lenslet(&format!("import {} -o muse.toml -q", muse.display()))?.stdout.is_empty());
    Ok(())
}

#[test]
fn the_command_refuses_and_warns() -> Checked {
    let run = Run::new()?;
    let muse = std::fs::read_to_string(example("MUSE_LTAO"))?;
    std::fs::write(run.path("bad.ini"), muse.replace("Seeing = 0.67", "Seeing = fine"))?;
    run.refuses(
        "import bad.ini -o a.toml",
        &["bad.ini:19: atmosphere.Seeing = fine: expected a literal"],
    )?;
    run.refuses("import none.ini -o a.toml", &["none.ini"])?;
    run.refuses("import bad.ini -o bad.ini", &["bad.ini"])?;
    std::fs::write(run.path("latin.ini"), b"[telescope]\n; \xe9\n")?;
    run.refuses("import latin.ini -o a.toml", &["latin.ini:2: expected text in UTF-8"])?;
    std::fs::write(run.path("odd.ini"), muse.replace("PupilAngle", "PupilAngel"))?;
    let output = run.lenslet("import odd.ini -o odd.toml")?;
    let warned = String::from_utf8(output.stderr)?;
    let wanted = "warning: line 8: telescope.PupilAngel = 0.0: TIPTOP documents no such key";
    assert!(output.status.success() && warned.contains(wanted), "{warned}");
    assert!(
        std::fs::read_to_string(run.path("odd.toml"))?
            .contains("# telescope.PupilAngel = 0.0: unknown")
    );
    Ok(())
}
